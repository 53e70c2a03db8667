"""What a policy is: to the engine, to the registry, to a user who writes one."""
