package invitation

import (
	"encoding/json"

	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/internal/answers"

	"github.com/go-webauthn/webauthn/protocol"
)

// creationOptions are what a browser makes a passkey by: one that is found without its id, and whose
// authenticator verifies its person each time. Which authenticator it is nobody asks.
func creationOptions(origin, name string, user, challenge []byte) ([]byte, error) {
	rpID, err := passkey.RPID(origin)
	if err != nil {
		return nil, err
	}
	name = "x402-wallet " + name
	required := true
	return json.Marshal(protocol.PublicKeyCredentialCreationOptions{
		RelyingParty: protocol.RelyingPartyEntity{ID: rpID,
			CredentialEntity: protocol.CredentialEntity{Name: "x402-wallet"}},
		User: protocol.UserEntity{ID: protocol.URLEncodedBase64(user), DisplayName: name,
			CredentialEntity: protocol.CredentialEntity{Name: name}},
		Challenge:  challenge,
		Parameters: parameters(),
		Timeout:    int(passkey.Life.Milliseconds()),
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: &required,
			UserVerification:   protocol.VerificationRequired,
		},
		Attestation: protocol.PreferNoAttestation,
	})
}

// parameters are the algorithms of the passkeys that are made.
func parameters() (list []protocol.CredentialParameter) {
	for _, a := range answers.Algorithms {
		list = append(list,
			protocol.CredentialParameter{Type: protocol.PublicKeyCredentialType, Algorithm: a})
	}
	return list
}

// registered is the passkey that a browser made for a challenge, at an origin (WebAuthn §7.1). No
// attestation is asked for, and none is believed: one that comes all the same only has to be well signed.
func registered(origin string, challenge, answer []byte) (k passkey.Key, err error) {
	rpID, err := passkey.RPID(origin)
	if err != nil {
		return k, err
	}
	if err := answers.CheckSize(answer); err != nil {
		return k, err
	}
	made, err := protocol.ParseCredentialCreationResponseBytes(answer)
	if err != nil {
		return k, answers.WithReason(err)
	}
	data := made.Response.AttestationObject.AuthData
	if err := answers.CheckStricter(made.Response.CollectedClientData, data, origin); err != nil {
		return k, err
	}
	_, err = made.Verify(answers.Encode(challenge), rpID, []string{origin}, nil, nil, answers.TopOrigins,
		answers.AllowFrame, answers.Verified, answers.Present, nil, parameters(),
		protocol.AttestationPolicy{}, protocol.SignaturePolicy{})
	if err != nil {
		return k, answers.WithReason(err)
	}
	public := data.AttData.CredentialPublicKey
	if err := answers.CheckKey(public); err != nil {
		return k, err
	}
	return passkey.Key{ID: answers.Encode(data.AttData.CredentialID), PublicKey: answers.Encode(public),
		Origin: origin, Count: int64(data.Counter)}, nil
}
