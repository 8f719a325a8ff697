#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Talk to Fairlead's path service (fairlead path serve) from Python.

Python's standard library is enough: the API is JSON over HTTP, at a Unix
socket or at an address of the loopback (fairlead path serve --http).

    paths.py unix:/run/fairlead/paths.sock h1 h2
    paths.py http://127.0.0.1:7475 h1 h2 --port 5001

lists the paths from h1 to h2 and the source ports that lead over each, asks
for the least loaded path for one long flow, and gives it back. As a module:

    service = Paths("http://127.0.0.1:7475")
    placed = service.place("h1", "h2", dst_port=5001, lease=600)
    ...  # connect from placed["flow"]["srcPort"]
    service.release(placed["id"])
"""

import argparse
import http.client
import json
import socket
import urllib.error
import urllib.request


class PathError(Exception):
    """What the service answered instead: code (such as not_found) and message."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path, timeout):
        super().__init__("fairlead", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Paths:
    """The path service at unix:/path or http://127.0.0.1:port."""

    def __init__(self, endpoint, timeout=10):
        if not endpoint.startswith(("unix:/", "http://")):
            raise PathError("invalid_argument", endpoint + ": must be unix:/path or http://address:port")
        self._timeout = timeout
        self._socket = endpoint[len("unix:"):] if endpoint.startswith("unix:") else None
        self._base = endpoint.rstrip("/")

    def call(self, method, **request):
        """Calls any method of api/paths.proto; names of fields as in JSON."""
        path = "/fairlead.v1.Paths/" + method
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/json"}
        if self._socket:
            connection = _UnixConnection(self._socket, self._timeout)
            try:
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                status, data = answer.status, answer.read()
            finally:
                connection.close()
        else:
            try:
                question = urllib.request.Request(self._base + path, body, headers)
                with urllib.request.urlopen(question, timeout=self._timeout) as answer:
                    status, data = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, data = error.code, error.read()
        value = json.loads(data)
        if status != 200:
            raise PathError(value.get("code", str(status)), value.get("message", ""))
        return value

    def list(self, a, b, via=(), avoid=()):
        """The paths of equal cost from a to b."""
        rules = {"via": list(via), "avoid": list(avoid)}
        return self.call("ListPaths", **{"from": a, "to": b, "rules": rules})["paths"]

    def ports(self, a, b, number=0, count=1, **wanted):
        """Flows that take path `number`; wanted: dstPort, srcPorts, ipv6, …"""
        return self.call("GetPorts", **{"from": a, "to": b, "number": number,
                                        "count": count, "wanted": wanted})["flows"]

    def path_of(self, src, dst, src_port, dst_port, protocol="tcp"):
        """The path that a flow takes, and what each router on it does."""
        return self.call("GetPath", flow={
            "src": src, "dst": dst, "protocol": protocol,
            "srcPort": src_port, "dstPort": dst_port})

    def place(self, a, b, dst_port=0, lease=0, owner=""):
        """Gives a long flow the least loaded path, for lease seconds (0: for ever)."""
        return self.call("PlaceFlow", **{"from": a, "to": b, "leaseSeconds": lease,
                                         "owner": owner, "wanted": {"dstPort": dst_port}})

    def release(self, number):
        """Gives the path back."""
        return self.call("ReleaseFlow", id=number)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("service", help="unix:/path or http://127.0.0.1:port")
    arguments.add_argument("a", help="where flows begin: a host's name or address")
    arguments.add_argument("b", help="where they end")
    arguments.add_argument("--port", type=int, default=443, help="destination port")
    given = arguments.parse_args()
    try:
        service = Paths(given.service)
        for path in service.list(given.a, given.b):
            nodes = [path["hops"][0]["from"]] + [hop["to"] for hop in path["hops"]]
            flow = service.ports(given.a, given.b, path["number"], dstPort=given.port)[0]
            print("path", path["number"], " ".join(nodes), "from source port", flow["srcPort"])
        placed = service.place(given.a, given.b, given.port, lease=60, owner="examples/paths.py")
        flow = placed["flow"]
        print("least loaded:", " ".join(hop["link"] for hop in placed["path"]["hops"]),
              "from source port", flow["srcPort"])
        taken = service.path_of(flow["src"], flow["dst"], flow["srcPort"], flow["dstPort"])
        assert taken["path"]["hops"] == placed["path"]["hops"], taken
        service.release(placed["id"])
    except PathError as error:
        raise SystemExit("the path service refuses: %s (%s)" % (error, error.code))
    except OSError as error:
        raise SystemExit("the path service at %s does not answer: %s" % (given.service, error))


if __name__ == "__main__":
    main()
