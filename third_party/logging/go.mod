module github.com/streamingfast/logging

go 1.26.0

require go.uber.org/zap v1.27.0
