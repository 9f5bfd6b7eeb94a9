"""What people look at while they work: search, and the lab page in a browser."""
