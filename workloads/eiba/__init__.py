"""EIBA, the application that emulates interactive behaviour: idle, busy, idle, ... on every worker."""
