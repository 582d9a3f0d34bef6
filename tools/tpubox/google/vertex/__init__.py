"""Vertex AI TensorBoard."""
