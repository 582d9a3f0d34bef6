"""The releases of JobSet and Kueue that the manifests here are written for, and that are installed."""

JOBSET = "v0.12.0"
KUEUE = "v0.16.6"
