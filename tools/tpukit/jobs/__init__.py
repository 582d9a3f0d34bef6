"""Jobs, the first use of the kernel.

Every use has the same modules: `decide` (pure), `observe`, `act` and `driver`.
"""
