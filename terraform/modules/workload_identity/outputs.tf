output "email" {
  description = "E-mail of the Google account"
  value       = google_service_account.this.email
}

output "member" {
  description = "The account as a member of IAM policies"
  value       = google_service_account.this.member
}
