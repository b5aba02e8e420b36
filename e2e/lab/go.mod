// Keeps the go command out of here: ./... does not go into another module, and node_modules holds tens of thousands of files.
module x402-wallet/e2e/lab

go 1.26.0
