"""A TCP relay between workers and a coordinator, through which a test loses, delays and breaks what they say."""

import contextlib
import select
import socket
import threading
import time

UP, DOWN = "to the coordinator", "from the coordinator"


class Relay:
    """Serves on a loopback port of its own. What a lost direction carries comes when it is mended, as TCP sends it again."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.changed = threading.Condition()
        self.lost = set()  # of UP and DOWN; guarded by `changed`, as is all that follows
        self.delay = 0.0
        self.open = True
        self.sockets = []
        self.threads = []
        self._run(self._accept)

    def lose(self, *directions):
        """From now on these are lost; none: nothing is."""
        with self.changed:
            self.lost = set(directions)
            self.changed.notify_all()

    def set_delay(self, seconds):
        """Each piece of data waits for so long."""
        with self.changed:
            self.delay = seconds

    def break_links(self):
        """Both ends see their links close, and may come again."""
        with self.changed:
            for end in self.sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self):
        with self.changed:
            self.open = False
            self.changed.notify_all()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.break_links()
        for thread in self.threads:
            thread.join()
        self.listener.close()
        for end in self.sockets:
            end.close()

    def _run(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while self.open:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self.changed:
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.sockets.append(end)
            if not self.open:
                self.break_links()
            self._run(self._carry, near, far, UP)
            self._run(self._carry, far, near, DOWN)

    def _carry(self, source, sink, direction):
        with contextlib.suppress(OSError):
            while True:
                select.select([source], [], [])
                if self.delay > 0:
                    time.sleep(self.delay)
                data = source.recv(1 << 16)
                if not data:
                    break
                with self.changed:
                    self.changed.wait_for(lambda: direction not in self.lost or not self.open)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
