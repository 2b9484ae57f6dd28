# SPDX-License-Identifier: MIT
"""Clients of `cpuslab export`, one kind after another: export_clients.py PORT PID, both of the server."""
import os
import re
import resource
import socket
import struct
import sys
import time

port, server = int(sys.argv[1]), int(sys.argv[2])
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def connect(number=0, **options):
    """From one of several addresses, as one alone has not enough ports for thousands."""
    client = socket.socket()
    if options.get("receive"):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["receive"])
    client.bind(("127.0.0.%d" % (2 + number % 8), 0))
    client.settimeout(120)
    client.connect(("127.0.0.1", port))
    return client


def rest(client):
    data = b""
    while piece := client.recv(1 << 16):
        data += piece
    return data


def ask(request=REQUEST):
    client = connect()
    client.sendall(request)
    return rest(client)


def check(answer, status=200, body=True):
    head, _, text = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), (status, answer[:100])
    assert b"\r\nConnection: close" in head, head
    length = int(re.search(rb"\r\nContent-Length: (\d+)", head)[1])
    assert len(text) == (length if body else 0), (length, len(text))
    assert length > 0
    if status == 200 and body and length > 100:
        assert b"# TYPE cpuslab_bytes gauge\n" in text


def is_open(client):
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        client.settimeout(120)


def files():
    return len(os.listdir("/proc/%d/fd" % server))


def eventually(condition, what):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("never: " + what)


def silent():
    """The answer comes while silent ones are connected.  A stopped machine may need another try."""
    for _ in range(5):
        idle = [connect(i) for i in range(6)]
        check(ask())
        if all(is_open(client) for client in idle):
            return
    raise AssertionError("clients that say nothing keep the others out")


def thousands():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10000, hard - 100)
    if soft < count + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, hard))
    idle = [connect(i) for i in range(count)]
    check(ask())
    for client in idle:
        assert client.recv(1) == b"", "a client that says nothing is kept"
        client.close()
    print("%d connections" % count)


def pieces():
    for i in range(len(REQUEST)):
        client = connect()
        client.sendall(REQUEST[:i])
        client.close()
    client = connect()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in b"\r\n" + REQUEST:
        client.sendall(bytes([byte]))
    check(rest(client))
    # Says that it is done before it has the answer.
    client = connect()
    client.sendall(REQUEST)
    client.shutdown(socket.SHUT_WR)
    check(rest(client))


def kinds():
    check(ask(b"GET /metrics HTTP/1.0\n\n"))
    check(ask(b"GET /metrics?a=b%s HTTP/1.1\r\n\r\n" % (b"c" * 5000)))
    check(ask(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), body=False)
    check(ask(b"HEAD /other HTTP/1.1\r\nHost: x\r\n\r\n"), 404, body=False)
    check(ask(b"GET / HTTP/1.1\r\n\r\n"))
    check(ask(b"GET /metricsmore HTTP/1.1\r\n\r\n"), 404)
    check(ask(b"GET /%s HTTP/1.1\r\n\r\n" % (b"a" * 5000)), 404)
    check(ask(b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), 501)
    check(ask(b"nonsense\r\n\r\n"), 400)
    check(ask(b" \r\n\r\n"), 400)
    # One answer, whole, and no reset by what is not read any more.
    check(ask(REQUEST * 50))
    check(ask(REQUEST + b"x" * 100000))
    large = b"GET /metrics HTTP/1.1\r\nCookie: %s\r\n\r\n"
    check(ask(large % (b"x" * 50000)))
    check(ask(large % (b"x" * 200000)), 431)


def slow():
    """Others are answered while one takes its answer byte by byte; then it gets the rest."""
    reader = connect(receive=2048)
    reader.sendall(REQUEST)
    taken = b"".join(reader.recv(1) for _ in range(50))
    for _ in range(3):
        answer = ask()
        check(answer)
    assert len(answer) > 4 << 20, "the answer is too short to make anybody wait: %d bytes" % len(answer)
    taken += b"".join(reader.recv(1) for _ in range(50))
    assert is_open(reader)
    taken += rest(reader)
    assert b"# TYPE cpuslab_bytes gauge\n" in taken
    length = int(re.search(rb"\r\nContent-Length: (\d+)", taken)[1])
    whole = taken.index(b"\r\n\r\n") + 4 + length
    assert len(taken) == whole, (len(taken), whole)


def resets():
    for i in range(400):
        client = connect(i, receive=2048)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(REQUEST[: i % 2 * 5] or REQUEST)
        if i % 100 == 0:
            client.recv(10)
        client.close()
    check(ask())


def together():
    """Many ask at once: all get a whole answer."""
    clients = [connect(i) for i in range(40)]
    for client in clients:
        client.sendall(REQUEST)
    for client in clients:
        check(rest(client))


def busy_ticks():
    fields = open("/proc/%d/stat" % server).read().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def short_of_files():
    """No descriptor is left for a client that waits to be accepted: the server waits too, without spinning."""
    before = resource.prlimit(server, resource.RLIMIT_NOFILE)
    resource.prlimit(server, resource.RLIMIT_NOFILE, (8, before[1]))
    waiting = [connect(i) for i in range(3)]
    spent = busy_ticks()
    time.sleep(1)
    spent = busy_ticks() - spent
    assert spent < os.sysconf("SC_CLK_TCK") / 3, "it spins: %d ticks" % spent
    resource.prlimit(server, resource.RLIMIT_NOFILE, before)
    for client in waiting:
        client.sendall(REQUEST)
        check(rest(client))


def crowded():
    """More connect than the server may have: the silent ones give way, the oldest first."""
    clients = [connect(i) for i in range(300)]
    eventually(lambda: not is_open(clients[0]), "room is made")
    clients[-1].sendall(REQUEST)
    check(rest(clients[-1]))


before = files()
for kind in sys.argv[3:]:
    globals()[kind]()
    eventually(lambda: files() <= before, "%s: descriptors stay open: %d, not %d" % (kind, files(), before))
