"""What operators order at run time: pause, resume, drain, weight; by node, partition and job.

``order_requests`` has the messages, ``order_book`` the orders in force and their effect on a job,
``permission`` who may order what, ``order_socket`` both ends of the Unix socket between ``osub gang`` and the
controller.
"""
