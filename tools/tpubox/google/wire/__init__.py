"""What all emulated APIs share: routing, request checks, operations, lists, refusals and state."""
