"""One sandbox: its folder, components, control plane, add-ons and life cycle."""
