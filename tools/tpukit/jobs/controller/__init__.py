"""The jobs controller: observe, decide (pure), act, and the driver that connects them."""
