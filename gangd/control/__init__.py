"""What operators order at run time: pause, resume, drain, weight; by node, partition and job.

``order_requests`` has the messages, ``order_book`` what stands and what follows for a job, ``permission`` who
may order what, ``order_socket`` both ends of the Unix socket between ``osub gang`` and the controller.
"""
