"""What smbprotocol's own tests expect: a server, and a folder of their own for each test."""

import ntpath
import os
import time

import pytest
import smbclient
import smbclient._pool
from smbclient.shutil import rmtree

SERVER = "127.0.0.1"
PORT = int(os.environ["SMB_PORT"])
USER, PASSWORD = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"]

# Most tests leave the port to the client, which takes 445.
for function in list(vars(smbclient._pool).values()):
    defaults = getattr(function, "__defaults__", None)
    if defaults and 445 in defaults:
        function.__defaults__ = tuple(PORT if value == 445 else value for value in defaults)


@pytest.fixture(scope="module")
def smb_real():
    shares = [rf"\\{SERVER}\{name}" for name in ("tmp", "tmp2")]
    return USER, PASSWORD, SERVER, PORT, *shares


@pytest.fixture
def smb_share(smb_real):
    folder = ntpath.join(smb_real[4], f"Pýtæs†-[{time.time()}] 💩")
    login = {"username": USER, "password": PASSWORD, "port": PORT}
    smbclient.delete_session(SERVER, port=PORT)
    smbclient.mkdir(folder, **login)
    yield folder
    smbclient.delete_session(SERVER, port=PORT)
    rmtree(folder, **login)


@pytest.fixture
def smb_dfs_share():
    pytest.skip("no namespace of DFS")


@pytest.fixture
def stub_scandir_gen():
    def scandir(closes, error):
        try:
            raise error
            yield
        finally:
            closes.append(True)

    return scandir
