"""Common parts of all emulated APIs: routing, request checks, operations, lists, refusals and state."""
