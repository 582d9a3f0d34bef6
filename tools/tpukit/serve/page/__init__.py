"""The page of `tpu serve`, on loopback and behind a token: what runs, what waits and why, and what it costs.

Everything that programs or users wrote is escaped. The page loads nothing from elsewhere and runs only its own scripts.
Every request that changes something carries a session and comes from the page itself.
"""
