"""A store behind OpenSSL. Prints its port; appends what connections bring to the file RECEIVED, each before it ends the connection.

usage: send_tls.py tcp|cut|http CERT KEY RECEIVED [CLIENT_CA]

tcp ends a connection as TLS wants it, cut without close_notify, http answers POST with 204. With CLIENT_CA clients need a certificate.
"""

import socket
import ssl
import sys

kind, cert, key, received = sys.argv[1:5]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
if len(sys.argv) > 5:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(sys.argv[5])


def body(stream):
    """All of it, or the body of one request."""
    text = b""
    while piece := stream.recv(65536):
        text += piece
        head, blank, rest = text.partition(b"\r\n\r\n")
        if kind == "http" and blank:
            lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if lengths and len(rest) >= int(lengths[0]):
                return rest
    return text


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    raw, _ = listener.accept()
    try:
        with context.wrap_socket(raw, server_side=True) as stream:
            text = body(stream)
            with open(received, "ab") as file:
                file.write(text)
            if kind == "http":
                stream.sendall(b"HTTP/1.1 204 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            if kind != "cut":
                stream.unwrap()
    except OSError:
        # Whoever does not trust the other ends the connection.
        pass
