package ownuser

import (
	"bytes"
	"encoding/xml"
	"path/filepath"
	"strings"
)

const (
	launchdName = "x402-wallet"
	launchdLog  = "/Library/Logs/x402-wallet.log"
	// systemID is of macOS' range for users of the system's own, which no login window shows.
	systemID = "402"
)

// launchdJob is the service as launchd reads it. It starts again whenever it ends.
func (s Setup) launchdJob() string {
	p := onLaunchd
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>` + launchdName + `</string>
	<key>UserName</key>
	<string>` + p.User + `</string>
	<key>GroupName</key>
	<string>` + p.User + `</string>
	<key>ProgramArguments</key>
	<array>
`)
	for _, arg := range s.serve(p) {
		b.WriteString("\t\t<string>" + escaped(arg) + "</string>\n")
	}
	b.WriteString(`	</array>
	<key>EnvironmentVariables</key>
	<dict>
		<key>HOME</key>
		<string>` + p.Home + `</string>
		<key>X402_WALLET_HOME</key>
		<string>` + p.Home + `</string>
	</dict>
	<key>KeepAlive</key>
` + s.keptAlive(p) + `
	<key>Umask</key>
	<integer>63</integer>
	<key>HardResourceLimits</key>
	<dict>
		<key>Core</key>
		<integer>0</integer>
	</dict>
	<key>SoftResourceLimits</key>
	<dict>
		<key>NumberOfFiles</key>
		<integer>16384</integer>
	</dict>
	<key>StandardErrorPath</key>
	<string>` + launchdLog + `</string>
</dict>
</plist>
`)
	return b.String()
}

// keptAlive says when it runs: once there is a wallet, or always where its owners may make it.
func (s Setup) keptAlive(p Place) string {
	if len(s.Owners) > 0 {
		return "\t<true/>"
	}
	return `	<dict>
		<key>PathState</key>
		<dict>
			<key>` + p.Home + `/keystore.json</key>
			<true/>
		</dict>
	</dict>`
}

func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // into memory
	return b.String()
}

func (s Setup) launchd() Plan {
	p := onLaunchd
	user, group, door := "/Users/"+p.User, "/Groups/"+p.User, filepath.Dir(p.Socket)
	dscl := func(argv ...string) Action { return tryTo(append([]string{"dscl", "."}, argv...)...) }
	return Plan{
		write(File{Path: p.Program, Mode: 0o755, From: s.Program}),
		dscl("-create", group, "PrimaryGroupID", systemID),
		dscl("-create", user, "UniqueID", systemID),
		dscl("-create", user, "PrimaryGroupID", systemID),
		dscl("-create", user, "NFSHomeDirectory", p.Home),
		dscl("-create", user, "UserShell", "/usr/bin/false"),
		dscl("-create", user, "IsHidden", "1"),
		run("install", "-d", "-m", "0755", "-o", "root", "-g", "wheel", filepath.Dir(p.Home)),
		run("install", "-d", "-m", "0700", "-o", p.User, "-g", p.User, p.Home),
		run("install", "-d", "-m", "0755", "-o", p.User, "-g", p.User, door),
		write(File{Path: p.Unit, Mode: 0o644, Text: s.launchdJob()}),
		tryTo("launchctl", "bootout", "system/"+launchdName),
		run("launchctl", "bootstrap", "system", p.Unit),
	}
}

func withoutLaunchd() Plan {
	return Plan{tryTo("launchctl", "bootout", "system/"+launchdName), remove(onLaunchd.Unit),
		remove(onLaunchd.Socket)}
}
