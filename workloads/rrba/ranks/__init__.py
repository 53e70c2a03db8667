"""What a rank has to do with the message-passing library: its waiting, its shared memory, its end."""
