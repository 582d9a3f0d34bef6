"""Firestore databases, as Terraform manages them."""
