# Dashboard and alerts of the job queue.

mock_provider "google" {}

variables {
  project_id            = "tpu-project"
  team                  = "research"
  notification_channels = ["projects/tpu-project/notificationChannels/1"]
  limits                = { chips = 32 }
}

run "every_trouble_has_an_alert_that_somebody_hears" {
  command = plan
  module {
    source = "./modules/queue_monitoring"
  }
  assert {
    condition     = toset(keys(google_monitoring_alert_policy.this)) == toset(["failed", "long", "waiting", "creator", "cost"])
    error_message = "failed jobs, long ones, those that wait, the creator, cost"
  }
  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.this : policy.notification_channels == tolist(["projects/tpu-project/notificationChannels/1"])])
    error_message = "all of them notify"
  }
  assert {
    condition     = endswith(google_monitoring_alert_policy.this["failed"].conditions[0].condition_prometheus_query_language[0].query, "[1h])) > 5")
    error_message = "more than five failures in an hour"
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.this["cost"].conditions[0].condition_prometheus_query_language[0].query, "> 32") && strcontains(google_logging_metric.failed.filter, "namespace_name=\"research\"")
    error_message = "of this team, and as many chips as were named"
  }
}

run "policies_can_be_made_before_their_metrics_exist" {
  command = plan
  module {
    source = "./modules/queue_monitoring"
  }
  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.this : policy.conditions[0].condition_prometheus_query_language[0].disable_metric_validation])
    error_message = "a new project has none of them"
  }
}

run "every_chart_of_the_dashboard_has_a_query" {
  command = plan
  module {
    source = "./modules/queue_monitoring"
  }
  assert {
    condition     = length(jsondecode(google_monitoring_dashboard.this.dashboard_json).gridLayout.widgets) == 6 && alltrue([for widget in jsondecode(google_monitoring_dashboard.this.dashboard_json).gridLayout.widgets : length(widget.xyChart.dataSets[0].timeSeriesQuery.prometheusQuery) > 0])
    error_message = "six charts"
  }
}
