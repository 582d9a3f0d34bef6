"""Environment variables for Services in containers."""

from __future__ import annotations

from typing import Any

from tpubox.kubelet import service_links


def service(name: str, address: str, *ports: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": list(ports)}}


def told(*services: dict[str, Any]) -> dict[str, str]:
    pod = {"metadata": {"namespace": "team"}, "spec": {}}
    return service_links.of_pod(pod, lambda namespace: services)


def test_service_is_told_as_a_kubelet_tells_it():
    ports = ({"name": "web-ui", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"})
    assert told(service("my-web", "10.0.0.7", *ports)) == {
        "MY_WEB_SERVICE_HOST": "10.0.0.7",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_WEB_UI": "80",
        "MY_WEB_SERVICE_PORT_DNS": "53",
        "MY_WEB_PORT": "tcp://10.0.0.7:80",
        "MY_WEB_PORT_80_TCP": "tcp://10.0.0.7:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "10.0.0.7",
        "MY_WEB_PORT_53_UDP": "udp://10.0.0.7:53",
        "MY_WEB_PORT_53_UDP_PROTO": "udp",
        "MY_WEB_PORT_53_UDP_PORT": "53",
        "MY_WEB_PORT_53_UDP_ADDR": "10.0.0.7",
    }


def test_headless_service_is_not_told():
    assert told(service("jobset", "None", {"port": 80}), service("external", "")) == {}


def test_api_servers_address_in_the_cluster_is_not_told():
    assert told(service("kubernetes", "10.0.0.1", {"port": 443})) == {}


def test_pod_that_wants_no_links_asks_for_no_services():
    pod = {"metadata": {"namespace": "team"}, "spec": {"enableServiceLinks": False}}
    assert service_links.of_pod(pod, lambda namespace: 1 / 0) == {}


def test_api_server_is_the_service_kubernetes():
    found = service_links.of_server("https://127.0.0.1:6443")
    assert found["KUBERNETES_SERVICE_HOST"] == "127.0.0.1"
    assert found["KUBERNETES_SERVICE_PORT"] == found["KUBERNETES_SERVICE_PORT_HTTPS"] == "6443"
    assert found["KUBERNETES_PORT"] == "tcp://127.0.0.1:6443"
