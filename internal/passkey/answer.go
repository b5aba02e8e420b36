package passkey

import (
	"errors"
	"fmt"

	"github.com/go-webauthn/webauthn/protocol"
)

// What go-webauthn is asked to verify of every answer: that no other page framed ours, and that a person was
// present and verified.
const (
	topOrigins                    = protocol.TopOriginExplicitVerificationMode
	allowFrame, verified, present = false, true, true
)

// checkSize refuses an answer that is longer than any browser's.
func checkSize(answer []byte) error {
	if len(answer) > MaxAnswer {
		return fmt.Errorf("%d bytes, more than an answer has", len(answer))
	}
	return nil
}

// checkStricter refuses two things that the library accepts: an origin that is spelled otherwise than ours,
// and a passkey that is backed up although its flags say that it cannot be.
func checkStricter(client protocol.CollectedClientData, data protocol.AuthenticatorData,
	origin string) error {
	if client.Origin != origin {
		return fmt.Errorf("it was made at %.100q, not at %s", client.Origin, origin)
	}
	if data.Flags.HasBackupState() && !data.Flags.HasBackupEligible() {
		return errors.New("it is backed up and cannot be")
	}
	return nil
}

// withReason adds the reason to an error of the library, whose text leaves it out. The reason may quote a
// browser.
func withReason(err error) error {
	var refused *protocol.Error
	if errors.As(err, &refused) && refused.DevInfo != "" {
		return fmt.Errorf("%w: %.200q", err, refused.DevInfo)
	}
	return err
}
