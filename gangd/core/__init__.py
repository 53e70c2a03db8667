"""Pure gang scheduling: typed events in, typed commands out; no socket, file, clock or log inside."""
