#!/bin/sh
# A signer for x402-wallet before anything that speaks PKCS#11: an HSM, a YubiKey, SoftHSM. It takes pkcs11-tool
# (OpenSC), jq and coreutils. The protocol is docs/rules.md.
#
#   x402-wallet signer add hsm --chain evm -- /usr/local/bin/pkcs11.sh MODULE TOKEN ID PIN_FILE
#
# MODULE is the library of the device, TOKEN the label of the token, ID that of the key on it (01), and PIN_FILE a
# file with the PIN that only you can read. The key is of secp256k1 (evm) or Ed25519 (solana), and never leaves.
set -eu
module=$1 token=$2 id=$3 pin_file=$4
umask 077

request=$(cat)
field() { printf '%s' "$request" | jq -r ".$1 // empty"; }
refuse() { jq -cn --arg why "$1" '{version: 1, error: $why}'; exit 0; }
to_bytes() { printf '%s' "$1" | tr a-f A-F | basenc --base16 --decode; }
to_hex() { od -An -v -tx1 | tr -d ' \n'; }
tool() { pkcs11-tool --module "$module" --token-label "$token" --id "$id" "$@" 2>/dev/null; }

[ "$(field version)" = 1 ] || refuse "this signer speaks version 1"
case $(field op) in
address)
    key=$(tool --read-object --type pubkey | to_hex)
    case $key in
    2d2d2d2d2d*) key=$(tool --read-object --type pubkey | grep -v -e ----- | base64 -d | to_hex) ;; # PEM
    esac
    [ -n "$key" ] || refuse "the token has no such key, or is not there"
    jq -cn --arg key "$key" '{version: 1, publicKey: $key}'
    ;;
sign)
    PKCS11_PIN=$(cat "$pin_file")
    export PKCS11_PIN
    case $(field chain) in
    evm) mechanism=ECDSA bytes=$(field digest) ;;
    solana) mechanism=EDDSA bytes=$(field message) ;;
    *) refuse "no such chain" ;;
    esac
    # This is the place to show $(field payload) to somebody, or to refuse what is too much for you.
    signature=$(to_bytes "$bytes" | tool --login --pin env:PKCS11_PIN --sign --mechanism "$mechanism" \
        --input-file /dev/stdin | to_hex)
    [ -n "$signature" ] || refuse "the token did not sign: is the PIN right?"
    jq -cn --arg signature "$signature" '{version: 1, signature: $signature}'
    ;;
*) refuse "no such question" ;;
esac
