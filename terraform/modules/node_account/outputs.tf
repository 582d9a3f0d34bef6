output "email" {
  description = "E-mail of the account, known once its roles are in force so that no node starts without them"
  value       = local.email
  depends_on  = [google_project_iam_member.roles]
}

output "member" {
  description = "The account as a member of IAM policies"
  value       = local.member
}
