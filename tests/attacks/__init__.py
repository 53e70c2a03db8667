"""What a second user of the host tries against a cluster of root's, attack by attack.

Each is one function with a name and a sentence; ``docs/measured/security.md`` lists them, and a test holds
the two lists together. ``tests/integration/test_second_user.py`` carries them out on a real Slurm. An attack
asserts that nothing was gained; the scene makes sure that nothing precious was touched.
"""

from tests.attacks import forged, names, processes, races, readings, submissions
from tests.attacks.attack import ATTACKS, Attack

__all__ = ["ATTACKS", "Attack"]
