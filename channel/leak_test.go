package channel

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "channel")
	if err != nil {
		panic(err)
	}
	testDir = dir
	code := m.Run()
	_ = theWallet().Close()
	_ = os.RemoveAll(dir)
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}
