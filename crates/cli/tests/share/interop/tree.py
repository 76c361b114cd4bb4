"""Python SMB clients as three commands, for serve_interop.rs.

usage: tree.py impacket|smbprotocol HOST PORT SHARE get REMOTE LOCAL    copies a folder of the share to a new local folder
                                                    put LOCAL REMOTE    copies in the other direction
                                                    list REMOTE         lists everything below it as JSON Lines: path, folder, size

Environment: SMB_USER and SMB_PASSWORD; SMB_DIALECT (impacket: NT1, 2.0.2, 2.1, 3.0, 3.1.1); SMB_ENCRYPT (smbprotocol).
"""
import io
import json
import os
import sys

BLOCK = 1 << 20


class Impacket:
    def __init__(self, host, port, share):
        from impacket.smb import SMB_DIALECT
        from impacket.smb3structs import SMB2_DIALECT_002, SMB2_DIALECT_21, SMB2_DIALECT_30, SMB2_DIALECT_311
        from impacket.smbconnection import SMBConnection

        dialects = {"NT1": SMB_DIALECT, "2.0.2": SMB2_DIALECT_002, "2.1": SMB2_DIALECT_21, "3.0": SMB2_DIALECT_30, "3.1.1": SMB2_DIALECT_311}
        dialect = os.environ.get("SMB_DIALECT")
        self.share = share
        self.smb = SMBConnection(host, host, sess_port=port, preferredDialect=dialects[dialect] if dialect else None)
        self.smb.login(os.environ["SMB_USER"], os.environ["SMB_PASSWORD"])
        if dialect and self.smb.getDialect() != dialects[dialect]:
            sys.exit(f"the server speaks {self.smb.getDialect()}")

    def entries(self, folder):
        for entry in self.smb.listPath(self.share, folder + "\\*"):
            name = entry.get_longname()
            if name not in (".", ".."):
                yield name, bool(entry.is_directory()), entry.get_filesize()

    def read(self, path, file):
        self.smb.getFile(self.share, path, file.write)

    def write(self, path, file):
        self.smb.putFile(self.share, path, file.read)

    def mkdir(self, path):
        self.smb.createDirectory(self.share, path)

    def close(self):
        self.smb.close()


class Smbprotocol:
    def __init__(self, host, port, share):
        import smbclient

        self.smb, self.root, self.port = smbclient, f"\\\\{host}\\{share}\\", port
        encrypt = True if os.environ.get("SMB_ENCRYPT") else None
        smbclient.register_session(
            host, port=port, username=os.environ["SMB_USER"], password=os.environ["SMB_PASSWORD"], encrypt=encrypt
        )

    def entries(self, folder):
        for entry in self.smb.scandir(self.root + folder, port=self.port):
            yield entry.name, entry.is_dir(), entry.smb_info.end_of_file

    def read(self, path, file):
        with self.smb.open_file(self.root + path, mode="rb", buffering=0, share_access="r", port=self.port) as source:
            while block := source.read(BLOCK):
                file.write(block)

    def write(self, path, file):
        with self.smb.open_file(self.root + path, mode="xb", buffering=0, port=self.port) as target:
            while block := file.read(BLOCK):
                view = memoryview(block)
                while view:
                    view = view[target.write(view) :]

    def mkdir(self, path):
        self.smb.mkdir(self.root + path, port=self.port)

    def close(self):
        self.smb.reset_connection_cache()


def get(client, remote, local):
    os.mkdir(local)
    for name, folder, size in list(client.entries(remote)):
        source, target = f"{remote}\\{name}", os.path.join(local, name)
        if folder:
            get(client, source, target)
            continue
        with open(target, "xb") as file:
            client.read(source, file)
            if file.tell() != size:
                sys.exit(f"{source!r}: {file.tell()} bytes, listed with {size}")


def put(client, local, remote):
    client.mkdir(remote)
    for entry in os.scandir(local):
        target = f"{remote}\\{entry.name}"
        if entry.is_dir():
            put(client, entry.path, target)
            continue
        with io.open(entry.path, "rb") as file:
            client.write(target, file)


def tell(client, remote, below=""):
    for name, folder, size in list(client.entries(remote)):
        print(json.dumps({"path": below + name, "folder": folder, "size": size}))
        if folder:
            tell(client, f"{remote}\\{name}", below + name + "/")


def main():
    kind, host, port, share, command, *paths = sys.argv[1:]
    client = {"impacket": Impacket, "smbprotocol": Smbprotocol}[kind](host, int(port), share)
    {"get": get, "put": put, "list": tell}[command](client, *paths)
    client.close()


main()
