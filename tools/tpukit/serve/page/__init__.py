"""The page of `tpu serve`: what runs, what waits and why, and where the money goes. On loopback, behind a token.

Every byte that a program or a person wrote is escaped. The page loads nothing from anywhere else and runs no script but
its own files; every request that changes something carries a session and comes from the page itself.
"""
