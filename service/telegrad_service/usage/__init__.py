"""What each tenant has used, and the metrics of the server."""
