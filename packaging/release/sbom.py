"""Software bill of materials of a Debian package: its wheels and its Python, in CycloneDX."""

import email
import hashlib
import io
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import datetime, timezone
from email.message import Message
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

# Debian's packages in a package that brings its Python along; own_python.py writes the list.
DEBIAN = "doc/tegrascope/python/packages"


def contents(package: Path) -> "Iterator[tuple[str, bytes]]":
    """Yield name and content of each wheel in a Debian package, and of its list of Debian's."""
    command = ("dpkg-deb", "--fsys-tarfile", str(package))
    unpacked = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as tree:
        for member in tree:
            if member.name.endswith((".whl", DEBIAN)) and (found := tree.extractfile(member)):
                yield Path(member.name).name, found.read()


def debian_components(listing: str) -> "Iterator[Component]":
    """Yield the entries of Debian's packages that a Python was made of: name, version, SHA-256."""
    for name, version, digest in map(str.split, listing.splitlines()):
        yield Component(
            bom_ref=name,
            name=name,
            version=version,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
            purl=PackageURL("deb", "debian", name, version),
        )


def license_name(told: Message) -> str:
    """Return the license that a wheel names: as an expression, as a classifier or as text."""
    classifiers = [one for one in told.get_all("Classifier", ()) if one.startswith("License ::")]
    stated = filter(None, (told["License-Expression"], *classifiers, told["License"]))
    first_line = next(stated, "see the wheel").splitlines()[0]
    return first_line.rpartition(":: ")[2]


def component(name: str, content: bytes) -> Component:
    """Return the entry of one wheel, which names its own project, version and license."""
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        (path,) = (one for one in opened.namelist() if one.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(opened.read(path))
    digest = hashlib.sha256(content).hexdigest()
    project = told["Name"].lower().replace("_", "-")
    return Component(
        bom_ref=name,
        name=told["Name"],
        version=told["Version"],
        description=told["Summary"],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        licenses=[LicenseFactory().make_from_string(license_name(told))],
        purl=PackageURL("pypi", None, project, told["Version"], {"file_name": name}),
    )


def write_sbom(package: Path, target: Path, version: str, epoch: int) -> None:
    """Write the SBOM of a package as JSON; the same package gives the same bytes."""
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    root = Component(
        bom_ref=package.name,
        type=ComponentType.APPLICATION,
        name="tegrascope",
        version=version,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )
    parts: list[Component] = []
    for name, content in contents(package):
        if name.endswith(".whl"):
            parts.append(component(name, content))
        else:
            parts.extend(debian_components(content.decode()))
    made = datetime.fromtimestamp(epoch, timezone.utc)
    bom = Bom(
        components=parts,
        serial_number=uuid5(NAMESPACE_URL, f"urn:sha256:{digest}"),
        metadata=BomMetaData(component=root, timestamp=made),
    )
    bom.register_dependency(root, parts)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    target.write_text(text + "\n", encoding="utf-8")
