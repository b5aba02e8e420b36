"""Writes golden.json: one statement of each kind, made and signed by a second reading of the package's comment.

    python3 golden.py > golden.json      (needs the package cryptography)

The owner's key is that of RFC 8032 test 2, the orchestrator's that of test 3.
"""
import base64, hashlib, json
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

seed = lambda text: Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text))
owner = seed("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
orchestrator = seed("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")


def name(key):
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return "ed25519:" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


ledger, number = "LEDGER7GOLDEN", "000102030405060708090a0b0c0d0e0f"
head = lambda key=owner: {"format": 1, "by": name(key), "ledger": ledger}
once = {"number": number, "made": "2026-11-26T12:00:00Z", "expires": "2026-11-26T12:10:00Z"}
first = hashlib.sha256(b"the first bundle").hexdigest()
statements = {
    "bundle": head() | {
        "version": 2, "previous": first, "notBefore": "2026-11-26T12:00:00Z", "expires": "2026-12-26T12:00:00Z",
        "replication": "quorum", "keys": "signer", "config": "[budget]\nday = \"5.00\" # <ä> & \u2028\t'\\'\n",
        "signers": [name(owner)],
        "orchestrators": [{"key": name(orchestrator), "agents": "research-*", "team": "research"}],
        "payers": {"research": ["0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"]}},
    "approval": head() | {
        "id": "apr_1", "quote": hashlib.sha256(b"a quote").hexdigest(), "team": "research", "agent": "research-7",
        "host": "api.example.com", "method": "GET", "url": "https://api.example.com/a?b=1&c=2",
        "network": "eip155:8453", "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "250000",
        "price": "0.25", "payTo": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"} | once,
    "lift": head() | {"upTo": 41} | once,
    "session": head() | {"id": "ses_1"} | once,
    "enrolment": head(orchestrator) | {
        "agent": "research-7", "team": "research", "labels": {"cost-center": "42", "env": "prod"},
        "number": number, "made": "2026-11-26T12:00:00Z", "until": "2027-01-01T00:00:00Z"},
}
out = {"owner": name(owner), "ledger": ledger, "signed": {}}
for purpose, statement in statements.items():
    text = json.dumps(statement, separators=(",", ":"), ensure_ascii=False).replace("\u2028", "\\u2028").encode()
    key = orchestrator if purpose == "enrolment" else owner
    signature = key.sign(f"x402-wallet fleet {purpose} v1\n".encode() + text)
    out["signed"][purpose] = {"statement": base64.b64encode(text).decode(),
                              "signature": base64.b64encode(signature).decode(),
                              "hash": hashlib.sha256(text).hexdigest()}
print(json.dumps(out, indent=2))
