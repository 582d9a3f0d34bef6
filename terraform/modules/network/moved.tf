# Addresses of releases before networks, buckets and repositories that exist could be taken.

moved {
  from = google_compute_network.this
  to   = google_compute_network.this[0]
}

moved {
  from = google_compute_subnetwork.this
  to   = google_compute_subnetwork.this[0]
}

moved {
  from = google_compute_router.this
  to   = google_compute_router.this[0]
}

moved {
  from = google_compute_router_nat.this
  to   = google_compute_router_nat.this[0]
}

moved {
  from = google_compute_firewall.webhooks
  to   = google_compute_firewall.webhooks[0]
}
