output "email" {
  description = "E-mail of the Google account"
  value       = local.email
}

output "member" {
  description = "The account as a member of IAM policies"
  value       = local.member
}
