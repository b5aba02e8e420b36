"""Writes the keystores: a second, independent reading of the
package's doc comment, so that the Go code is not its own only witness.

    python3 golden.py > keystore.json               (needs the package cryptography)
    python3 golden.py phrase > keystore-phrase.json (also account)
    python3 golden.py phrase account > keystore-all.json

The keys are public: the Ed25519 seed of RFC 8032 test 1, and the first account of anvil and hardhat, with the
phrase that it comes from, where the Solana key is that phrase's too. The account "research" has anvil's second
key, and the phrase's second Solana key or the secret of RFC 8032 test 3 where there is no phrase. The
passphrase (passphrase.txt) is typed with a combining accent; NFC makes it one letter.
"""
import base64, hashlib, hmac, json, pathlib, sys, unicodedata
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

b64 = lambda b: base64.b64encode(b).decode()
here = pathlib.Path(__file__).parent
typed = (here / "passphrase.txt").read_bytes().removesuffix(b"\n").decode()
passphrase = unicodedata.normalize("NFC", typed).encode()
assert passphrase != typed.encode()


def keccak256(data):
    mask = (1 << 64) - 1
    rol = lambda x, n: ((x << n) | (x >> (64 - n))) & mask if n else x
    rc, lfsr = [], 1
    for _ in range(24):
        c = 0
        for j in range(7):
            if lfsr & 1:
                c |= 1 << ((1 << j) - 1)
            lfsr = (lfsr << 1) ^ (0x171 if lfsr & 0x80 else 0)
        rc.append(c)
    a = [[0] * 5 for _ in range(5)]
    rate = 136
    padded = data + b"\x01" + bytes(rate - 1 - len(data) % rate)
    padded = padded[:-1] + bytes([padded[-1] | 0x80])
    for off in range(0, len(padded), rate):
        for i in range(rate // 8):
            a[i % 5][i // 5] ^= int.from_bytes(padded[off + 8 * i : off + 8 * i + 8], "little")
        for r in range(24):
            c = [a[x][0] ^ a[x][1] ^ a[x][2] ^ a[x][3] ^ a[x][4] for x in range(5)]
            d = [c[(x - 1) % 5] ^ rol(c[(x + 1) % 5], 1) for x in range(5)]
            a = [[a[x][y] ^ d[x] for y in range(5)] for x in range(5)]
            x, y, cur = 1, 0, a[1][0]
            for t in range(24):
                x, y = y, (2 * x + 3 * y) % 5
                cur, a[x][y] = a[x][y], rol(cur, (t + 1) * (t + 2) // 2 % 64)
            for y in range(5):
                row = [a[x][y] for x in range(5)]
                for x in range(5):
                    a[x][y] = row[x] ^ (~row[(x + 1) % 5] & mask & row[(x + 2) % 5])
            a[0][0] ^= rc[r]
    return b"".join(a[i % 5][i // 5].to_bytes(8, "little") for i in range(4))


assert keccak256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"


def base58(data):
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    n, out = int.from_bytes(data, "big"), ""
    while n:
        n, r = divmod(n, 58)
        out = alphabet[r] + out
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + out


def eip55(account):
    low = account.hex()
    sums = keccak256(low.encode()).hex()
    return "0x" + "".join(c.upper() if int(s, 16) >= 8 else c for c, s in zip(low, sums))


solana = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
evm = bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
seal = bytes(range(32))
what = sys.argv[1:]
has_phrase, has_accounts = [part in what for part in ("phrase", "account")]
other_solana = bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
other_evm = bytes.fromhex("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d")
record = bytes(84)
if has_phrase:  # BIP-39, and SLIP-10 at m/44'/501'/N'/0'
    phrase = "test " * 11 + "junk"
    english = (here.parent / "english.txt").read_text().split()
    bits = "".join(f"{english.index(word):011b}" for word in phrase.split())
    entropy = int(bits[:128], 2).to_bytes(16, "big")
    assert bits[128:] == f"{hashlib.sha256(entropy).digest()[0]:08b}"[:4]
    seed = hashlib.pbkdf2_hmac("sha512", phrase.encode(), b"mnemonic", 2048)
    def at(account):
        node = hmac.new(b"ed25519 seed", seed, hashlib.sha512).digest()
        for step in [44, 501, account, 0]:
            data = b"\0" + node[:32] + (1 << 31 | step).to_bytes(4, "big")
            node = hmac.new(node[32:], data, hashlib.sha512).digest()
        return node[:32]
    solana, other_solana = at(0), at(1)
    steps = lambda *of: bytes([len(of)]) + b"".join(n.to_bytes(4, "big") for n in of) + bytes(4 * (6 - len(of)))
    hard = 1 << 31
    record = (bytes([len(entropy), 0]) + entropy + bytes(32 - len(entropy)) +
              steps(hard + 44, hard + 501, hard, hard) + steps(hard + 44, hard + 60, hard, 0, 0))
    assert len(record) == 84
def addresses(solana, evm):
    public = ed25519.Ed25519PrivateKey.from_private_bytes(solana).public_key()
    point = ec.derive_private_key(int.from_bytes(evm, "big"), ec.SECP256K1()).public_key()
    return (base58(public.public_bytes(Encoding.Raw, PublicFormat.Raw)),
            eip55(keccak256(point.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:])[12:]))


keys = lambda solana, evm: [{"chain": "solana", "address": solana}, {"chain": "evm", "address": evm}]
solana_address, evm_address = addresses(solana, evm)
assert evm_address == "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
accounts = []
if has_accounts:
    of_solana, of_evm = addresses(other_solana, other_evm)
    assert of_evm == "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
    accounts = [{"name": "research", "index": 1 if has_phrase else 0, "keys": keys(of_solana, of_evm)}]

n, r, p, created = 1 << 14, 8, 1, "2026-11-21T18:30:00Z"
salt = hashlib.sha256(b"golden salt").digest()
nonce = hashlib.sha256(b"golden nonce").digest()[:12]
header = (
    f"x402-wallet-keystore 1\nkdf scrypt {n} {r} {p} {b64(salt)}\ncipher aes-256-gcm {b64(nonce)}\n"
    f"key solana {solana_address}\nkey evm {evm_address}\ncreated {created}\n" +
    "".join(f"account {a['name']} {a['index']} {of_solana} {of_evm}\n" for a in accounts)
).encode()
derived = hashlib.scrypt(passphrase, salt=salt, n=n, r=r, p=p, maxmem=1 << 26, dklen=64)
secrets = {"version": 1, "solana": b64(solana), "evm": b64(evm), "seal": b64(seal)}
if has_phrase:
    secrets["phrase"] = b64(record)
if has_accounts:
    secrets |= {"solana1": b64(other_solana), "evm1": b64(other_evm)}
plain = json.dumps(secrets, separators=(",", ":"))
ciphertext = AESGCM(derived[:32]).encrypt(nonce, plain.encode(), header)
commitment = hmac.new(derived[32:], header + ciphertext, hashlib.sha256).digest()
print(json.dumps({
    "format": "x402-wallet-keystore", "version": 1,
    "kdf": {"name": "scrypt", "n": n, "r": r, "p": p, "salt": b64(salt)},
    "cipher": {"name": "aes-256-gcm", "nonce": b64(nonce)},
    "keys": keys(solana_address, evm_address), **({"accounts": accounts} if accounts else {}),
    "created": created, "ciphertext": b64(ciphertext), "commitment": b64(commitment),
}, indent=2))
