#!/usr/bin/env bash
# Fills dist/ with what is published: for each platform an archive, an MCP bundle and a bill of materials; server.json for the MCP
# registry; SHA256SUMS, and its signature if KEY names a key of ssh-keygen. The same commit gives the same bytes on any machine.
set -euo pipefail
cd "$(dirname "$0")"
goreleaser=github.com/goreleaser/goreleaser/v2@v2.15.1
cyclonedx=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
publisher=${PUBLISHER:-example.x402-wallet} url=${RELEASE_URL:-https://mcp.x402-wallet.example/releases}
about='The wallet an AI agent can be trusted with: pays x402 URLs inside budgets that the agent cannot move'
long='The agent asks for a paid URL; the wallet pays with USDC on Base, other EVM chains or Solana, inside budgets that you set, and '\
'returns the content with a receipt. Keys stay encrypted on this computer.\n\nBefore the first payment run `x402-wallet init` in a '\
'terminal once: it asks for a passphrase, which no agent and no settings file ever sees.'

if [ -n "${KEY-}" ] && [ -n "$(git status --porcelain)" ]; then
	echo 'the tree has changes that are in no commit: nothing is signed' >&2
	exit 1
fi
described=$(git describe --tags --always --dirty)
case $described in
	v*.*.*) VERSION=${described#v} ;;
	*) VERSION=0.0.0-dev.g${described//-/.} ;; # comes before all releases
esac
export VERSION

# What goes into the archives beside the program.
rm -rf bin/pack dist
mkdir -p bin/pack/completions bin/pack/man dist
go build -o bin/pack/x402-wallet .
bin/pack/x402-wallet man bin/pack/man
for shell in bash:x402-wallet.bash zsh:_x402-wallet fish:x402-wallet.fish powershell:x402-wallet.ps1; do
	bin/pack/x402-wallet completion "${shell%%:*}" >"bin/pack/completions/${shell#*:}"
done
for system in linux darwin windows; do
	GOOS=$system go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' .
done | LC_ALL=C sort -u | while read -r module version dir; do
	printf '==== %s %s\n\n' "$module" "$version"
	find "$dir" -maxdepth 1 -type f \( -iname 'license*' -o -iname 'licence*' -o -iname 'copying*' -o -iname 'notice*' \) -print0 |
		LC_ALL=C sort -z | xargs -0r cat | tr -d '\r'
	echo
done >bin/pack/LICENSES-OF-OTHERS.txt
for system in linux darwin windows; do
	program=x402-wallet platform=$system
	if [ $system = windows ]; then program=x402-wallet.exe platform=win32; fi
	mkdir -p bin/pack/manifest/$system
	cat >bin/pack/manifest/$system/manifest.json <<-JSON
		{
		  "manifest_version": "0.3", "name": "x402-wallet", "display_name": "x402-wallet", "version": "$VERSION",
		  "description": "$about.", "long_description": "$long",
		  "author": {"name": "The x402-wallet authors"}, "license": "Apache-2.0", "keywords": ["x402", "payments", "wallet", "usdc"],
		  "server": {"type": "binary", "entry_point": "$program",
		    "mcp_config": {"command": "\${__dirname}/$program", "args": ["mcp"], "env": {}}},
		  "tools_generated": true, "compatibility": {"platforms": ["$platform"]}
		}
	JSON
done

go run $goreleaser release --clean --snapshot --parallelism 2
cp bin/release/*.tar.gz bin/release/*.zip dist
packages=
for program in bin/release/x402-wallet_*/x402-wallet*; do
	IFS=_ read -r _ system machine _ <<<"$(basename "$(dirname "$program")")"
	name=x402-wallet-$VERSION-$system-$machine
	mv "dist/$name.mcpb.zip" "dist/$name.mcpb"
	go run $cyclonedx bin -json -std -noserial -notimestamp -version "$VERSION" -output "dist/$name.cdx.json" "$program"
	sum=$(sha256sum "dist/$name.mcpb" | cut -d' ' -f1)
	packages+="${packages:+,}
    {\"registryType\": \"mcpb\", \"identifier\": \"$url/$name.mcpb\", \"version\": \"$VERSION\", \"fileSha256\": \"$sum\",
     \"transport\": {\"type\": \"stdio\"}}"
done
cat >dist/server.json <<-JSON
	{
	  "\$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
	  "name": "$publisher/x402-wallet", "title": "x402-wallet", "description": "$about", "version": "$VERSION", "packages": [$packages
	  ]
	}
JSON
cd dist
LC_ALL=C sha256sum -- * >SHA256SUMS
if [ -z "${KEY-}" ]; then
	echo 'not signed: give the key with KEY=FILE'
	exit
fi
ssh-keygen -Y sign -f "$KEY" -n x402-wallet-release SHA256SUMS
printf 'x402-wallet %s\n' "$(cut -d' ' -f1,2 "${KEY%.pub}.pub")" >../bin/pack/signers
ssh-keygen -Y verify -f ../bin/pack/signers -I x402-wallet -n x402-wallet-release -s SHA256SUMS.sig <SHA256SUMS
