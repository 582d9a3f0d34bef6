locals {
  # Managed Service for Prometheus has the creator's metrics, which deploy/queue-monitoring has it collect
  # (https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed).
  conditions = {
    failed = {
      title    = "Queued jobs fail"
      query    = "sum(increase(logging_googleapis_com:user_${google_logging_metric.failed.name}{monitored_resource=\"k8s_container\"}[1h])) > ${var.limits.failed_per_hour}"
      duration = "0s"
      help     = "`tpu queue list --status failed` says why each of them did; `--dead` shows those that lost their machines."
    }
    long = {
      title    = "A queued job runs for long"
      query    = "max(tpukit_queue_longest_seconds) > ${var.limits.longest_seconds}"
      duration = "60s"
      help     = "`tpu queue list --status running` names it, `tpu queue cancel` ends it."
    }
    waiting = {
      title    = "Queued jobs wait for long"
      query    = "max(tpukit_queue_oldest_seconds) > ${var.limits.waiting_seconds}"
      duration = "60s"
      help     = "`tpu team queue` says who has the slices; `tpu queue list --status pending` what waits."
    }
    creator = {
      title    = "The queue has no supervisor"
      query    = "absent(tpukit_queue_leader) or max(tpukit_queue_leader) < 1 or sum(rate(tpukit_queue_rounds_total[5m])) == 0"
      duration = "300s"
      help     = "`kubectl -n tpukit-queue get pods`, and the logs of the creator."
    }
    cost = {
      title    = "Queued jobs hold many chips"
      query    = "sum(kubernetes_io:container_accelerator_request{monitored_resource=\"k8s_container\",namespace_name=\"${var.team}\",container_name=\"worker\"}) > ${var.limits.chips}"
      duration = "3600s"
      help     = "`tpu queue list --status running`; `tpu team add TEAM --quota` limits what the team may have."
    }
  }
  charts = {
    "Jobs by status"               = "sum by (status) (tpukit_queue_jobs)"
    "Age of the oldest that waits" = "max(tpukit_queue_oldest_seconds)"
    "Longest that runs"            = "max(tpukit_queue_longest_seconds)"
    "Supervisors"                  = "sum(tpukit_queue_leader)"
    "Errors of the store"          = "sum(rate(tpukit_queue_store_errors_total[5m]))"
    "TPU chips of queued jobs"     = "sum(kubernetes_io:container_accelerator_request{monitored_resource=\"k8s_container\",namespace_name=\"${var.team}\",container_name=\"worker\"})"
  }
}

# What workers print when a job has ended: `KEY: failed: ...`.
resource "google_logging_metric" "failed" {
  project     = var.project_id
  name        = "tpukit_queue_failed"
  description = "Queued jobs that failed"
  filter      = "resource.type=\"k8s_container\" AND resource.labels.namespace_name=\"${var.team}\" AND resource.labels.container_name=\"worker\" AND textPayload=~\"^[^ ]+: failed: \""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }
}

resource "google_monitoring_alert_policy" "this" {
  for_each              = local.conditions
  project               = var.project_id
  display_name          = each.value.title
  combiner              = "OR"
  notification_channels = var.notification_channels
  user_labels           = var.labels

  conditions {
    display_name = each.value.title
    condition_prometheus_query_language {
      query               = each.value.query
      duration            = each.value.duration
      evaluation_interval = "60s"
      # Metrics exist after the first one was sent, and those of logs minutes after they were made: on a new project a
      # policy that insists on them is refused (https://github.com/hashicorp/terraform-provider-google/issues/11102).
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = each.value.help
  }
}

resource "google_monitoring_dashboard" "this" {
  project = var.project_id
  dashboard_json = jsonencode({
    displayName = "Job queue of ${var.team}"
    gridLayout = {
      columns = "2"
      widgets = [for title, query in local.charts : {
        title = title
        xyChart = {
          dataSets = [{ plotType = "LINE", timeSeriesQuery = { prometheusQuery = query } }]
        }
      }]
    }
  })
}
