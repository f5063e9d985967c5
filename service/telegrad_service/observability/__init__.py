"""What the server does, to be watched: requests and their ids, counts, logs, events of sessions, traces."""
