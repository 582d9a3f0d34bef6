"""Google Kubernetes Engine: clusters and node pools."""
