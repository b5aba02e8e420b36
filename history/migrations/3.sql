-- who was paid for what (memory rules). Prices paid before have no resource: their memory begins here.
ALTER TABLE payments ADD COLUMN payee TEXT NOT NULL DEFAULT '';
ALTER TABLE payments ADD COLUMN resource TEXT NOT NULL DEFAULT '';
UPDATE payments SET payee = CASE WHEN network LIKE 'eip155:%' THEN lower(pay_to) ELSE pay_to END;
CREATE INDEX payments_by_payee        ON payments (network, payee) WHERE state <> 'failed';
CREATE INDEX payments_by_seller       ON payments (host, network, asset, payee) WHERE state <> 'failed';
CREATE INDEX payments_by_resource     ON payments (resource, seq) WHERE state <> 'failed';
