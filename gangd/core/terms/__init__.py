"""The words of the scheduler: cores, instants, events, commands, states and how they change."""
