"""What operators order at run time: pause, resume, drain, weight; by node, partition and job.

``requests`` has the messages, ``book`` what stands and what follows for a job, ``permission`` who may order
what, ``server`` and ``ask`` the Unix socket between ``osub gang`` and the controller.
"""
