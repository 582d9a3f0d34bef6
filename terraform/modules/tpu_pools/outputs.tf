output "ids" {
  description = "Ids of the pools, by name"
  value       = { for name, pool in google_container_node_pool.this : name => pool.id }
}

output "pools" {
  description = "What a scheduler needs of each pool, by name: zone, machine type, topology, hosts, capacity and instance groups"
  value = { for name, pool in google_container_node_pool.this : name => {
    zone            = one(pool.node_locations)
    machine_type    = pool.node_config[0].machine_type
    topology        = var.pools[name].topology
    hosts           = var.pools[name].hosts
    capacity        = var.pools[name].capacity
    instance_groups = pool.managed_instance_group_urls
  } }
}
