"""Identity and Access Management: principals, roles, policies, credentials."""
