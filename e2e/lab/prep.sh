#!/bin/sh
# Prepares the lab: installs every npm set from its lock file and compiles the token. Run again, it does only what has changed.
# Install scripts are not run: what the lab needs of them ships as plain files inside the packages. With arguments: only these sets.
set -eu

fail() {
    echo "e2e/lab/prep.sh: $*" >&2
    exit 1
}

command -v node >/dev/null || fail "node is not installed: the lab needs Node.js 20 or newer"
command -v npm >/dev/null || fail "npm is not installed: the lab needs it to fetch its parts"
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 20 ] || fail "node is version $major: the lab needs 20 or newer"

# npm may wait for very long on a registry that stalls: it gets some minutes, and is then asked again.
bound=
if command -v timeout >/dev/null; then bound='timeout -k 10 240'; fi
ci() {
    for try in 1 2 3; do
        $bound npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-timeout=60000 </dev/null && return
        echo "e2e/lab: npm ci failed or was stopped, try $try of 3" >&2
    done
    return 1
}

cd "$(dirname "$0")"
sets=${*:-chain parties v1 solc inspector conformance mcp mcp-v1 mcp-old nuwa mpp}
for set in $sets; do
    # The copy of the lock file says what is installed; up.mjs compares it too.
    cmp -s "$set/package-lock.json" "$set/node_modules/.prepared" && continue
    echo "e2e/lab: installing $set" >&2
    (cd "$set" && ci) || fail "npm ci failed in e2e/lab/$set"
    cp "$set/package-lock.json" "$set/node_modules/.prepared"
done

[ $# -eq 0 ] || exit 0
for contract in contracts/TestUSDC contracts/TestPermit2 contracts/TestBatchSettlement; do
    if [ ! -s $contract.json ] || [ $contract.sol -nt $contract.json ] || [ contracts/compile.mjs -nt $contract.json ]; then
        echo "e2e/lab: compiling the contracts" >&2
        node contracts/compile.mjs || fail "a contract does not compile"
    fi
done
