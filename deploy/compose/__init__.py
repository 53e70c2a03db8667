"""A test cluster in containers: a controller, nodes that come and go, accounting with a real database.

Start reading at ``compose.yaml``, which names what runs where and with which rights; ``inside`` is what runs
in the containers, ``cluster`` is up, status and down from outside.
"""
